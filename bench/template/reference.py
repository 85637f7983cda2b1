"""Renders chat templates with jinja2, in the environment that transformers sets up, and measures it.

Reads one JSON request a line and answers each with one line:
  {"load": ID, "source": TEMPLATE, "variables": {...}}  ->  {"text": ...} or {"error": ...}
  {"time": ID, "seconds": S}                            ->  {"microseconds": per render, "renders": N}
"""

import datetime
import json
import sys
import time

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """The generation tag: its body in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("body_of"), [], [], body).set_lineno(line)

    def body_of(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime(2026, 11, 30, 12, 34, 56).strftime(form)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = strftime_now

compiled, loaded = {}, {}


def load(request):
    source = request["source"]
    try:
        if source not in compiled:
            compiled[source] = environment.from_string(source)
        loaded[request["load"]] = compiled[source], request["variables"]
        return {"text": compiled[source].render(**request["variables"])}
    except Exception as error:  # whatever a template does: it is the answer
        return {"error": f"{type(error).__name__}: {error}"}


def measure(request):
    template, variables = loaded[request["time"]]
    # Processor time: other work on the machine does not count.
    renders, start = 0, time.process_time()
    end = start + request["seconds"]
    while True:
        for _ in range(8):
            template.render(**variables)
        renders += 8
        now = time.process_time()
        if now >= end:
            return {"microseconds": (now - start) / renders * 1e6, "renders": renders}


print(json.dumps({"version": jinja2.__version__, "python": sys.version.split()[0]}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    answer = load(request) if "load" in request else measure(request)
    print(json.dumps(answer), flush=True)
