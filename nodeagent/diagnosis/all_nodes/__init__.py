"""What the agents of all nodes say, as one verdict. Pure."""
