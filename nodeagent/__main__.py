"""`python -m nodeagent`"""

from nodeagent.cli.main import main

if __name__ == "__main__":
    main()
