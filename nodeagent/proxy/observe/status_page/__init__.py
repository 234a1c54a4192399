"""The status page of the metrics server: one document that loads nothing from elsewhere, and the JSON that it requests.

book            what the passes made of each service
packet_ways     the path of a packet to a service, step by step
status_answers  the document, the JSON, and the stream of changes
"""
