"""Runs the features of one client and prints what became of each, as JSON."""

import json
import os
import sys
import time
import traceback

URL = os.environ["PROMPTLY_URL"]
KEY = os.environ["PROMPTLY_KEY"]
MODEL = "sim"
EMBEDDER = "words"
QUESTION = "What is the weather in Paris?"
ANSWER = "It is sunny in Paris."
V1 = f"{URL}/v1"


def weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: the name of the city
    """
    return f"sunny in {city}"


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = "The weather in a city."


def main(clients):
    """Run the clients named on the command line; one line of JSON for each."""
    for client in sys.argv[1:]:
        outcomes = {}
        for name, feature in clients[client].items():
            start = time.monotonic()
            try:
                feature()
                outcomes[name] = "yes"
            except Exception as error:
                traceback.print_exc()
                outcomes[name] = f"{type(error).__name__}: {error}"
            print(f"{client} {name} {time.monotonic() - start:.1f} s", file=sys.stderr)
        print(json.dumps([client, outcomes]), flush=True)
