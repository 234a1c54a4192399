"""The page of a lab: its nodes, who talks to whom, load and faults, live, and a switch for each node's link.

access   who may ask                                        (pure)
state    what was looked at → what the page shows           (pure)
looks    what nodes say of themselves, and their connection tables
cuts     links of nodes, cut and mended
watch    looks for as long as somebody watches
answers  the document, the stream, the orders
server   the socket; what answers is loaded when somebody first asks
"""
