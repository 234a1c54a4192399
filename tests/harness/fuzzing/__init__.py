"""What is read from outside, each as a target: good bytes to begin with, and what must hold whatever they become."""
