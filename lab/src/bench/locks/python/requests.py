"""A process that measures on request, for `lab bench locks`. It begins each of the other scripts.

Each line of stdin is a request, as JSON: {"what": NAME, "count": N, ...}. The answer is a line with
the N measured times, in nanoseconds. The argument is the address of the server.
"""

import json
import sys


def answer_requests(measures):
    """Calls the measure of each request with the request's other values."""
    for line in sys.stdin:
        request = json.loads(line)
        measure = measures[request.pop("what")]
        print(json.dumps(list(measure(**request))), flush=True)


