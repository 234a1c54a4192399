"""Commands. Each file is one command; errors end in one line on standard error and a documented exit code."""
