"""The status page of the metrics server: one document without anything from elsewhere, and the JSON that it asks for.

book     what the passes made of each service
ways     a packet's way to a service, step by step
answers  the document, the JSON, and the stream of what changes
"""
