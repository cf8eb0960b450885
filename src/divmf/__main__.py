"""`python -m divmf`, and `torchrun -m divmf`."""

from divmf.cli import main

if __name__ == "__main__":
    main()
