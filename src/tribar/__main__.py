"""``python -m tribar``."""

from tribar.app.cli import main

if __name__ == "__main__":
    main()
