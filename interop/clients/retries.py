"""Lets the official OpenAI and Anthropic SDKs meet refusals, broken connections and time-outs.

    python retries.py GATE_URL MODEL

GATE_URL is that of the gate in retry_test.go, which counts the tries. It ends with "ok" and status 0, or with the assertion that failed.
"""
import socket
import sys

import anthropic
import openai

gate, model = sys.argv[1:3]
messages = [{"role": "user", "content": "Where to?"}]


def ask_openai(base, retries, timeout):
    client = openai.OpenAI(base_url=base + "/v1", api_key="unused", max_retries=retries, timeout=timeout)
    return client.chat.completions.create(model=model, messages=messages, max_tokens=2).usage.completion_tokens


def ask_anthropic(base, retries, timeout):
    client = anthropic.Anthropic(base_url=base, api_key="unused", max_retries=retries, timeout=timeout)
    return client.messages.create(model=model, messages=messages, max_tokens=2).usage.output_tokens


with socket.socket() as closed:
    closed.bind(("127.0.0.1", 0))
    nobody = "http://127.0.0.1:%d" % closed.getsockname()[1]

for name, sdk, ask in (("openai-python", openai, ask_openai), ("anthropic-python", anthropic, ask_anthropic)):
    for case in ("refused-429", "refused-503", "refused-529", "broken", "slow"):
        timeout = 1 if case == "slow" else 30
        assert ask(f"{gate}/{name}/{case}", 2, timeout) == 2, (name, case)
        try:
            ask(f"{gate}/{name}-once/{case}", 0, timeout)
            raise AssertionError(f"{name}, {case}: no error")
        except sdk.APIStatusError as e:
            assert case == f"refused-{e.status_code}" and "overloaded" in e.message.lower(), (name, case, e)
            assert isinstance(e, sdk.RateLimitError if e.status_code == 429 else sdk.InternalServerError) or name == "anthropic-python", (name, case, type(e))
        except sdk.APITimeoutError:
            assert case == "slow", (name, case)
        except sdk.APIConnectionError:
            assert case == "broken", (name, case)
    try:
        ask(nobody, 1, 30)
        raise AssertionError(f"{name}: nobody answered")
    except sdk.APIConnectionError as e:
        assert not isinstance(e, sdk.APITimeoutError), e
print("ok")
