"""`python -m watersmeet`."""

from watersmeet.cli.main import app

app(prog_name="watersmeet")
