"""The page of a lab: nodes, connections, load and faults, live, and a button for each node's link.

page_access   which requests are allowed                  (pure)
page_state    observations → what the page shows          (pure)
looks         reads agents and connection tables of nodes
cuts          cuts and repairs links of nodes
page_watch    observes the lab as long as there are watchers
page_answers  the document, the stream, and the commands from the page
page_server   the socket; the HTTP code is loaded at the first connection
"""
