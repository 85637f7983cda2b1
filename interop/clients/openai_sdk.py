"""Uses the official OpenAI and Anthropic SDKs as their users would.

    python openai_sdk.py BASE_URL MODEL

It ends with "ok" and status 0, or with the assertion that failed.
"""
import sys

import anthropic
import openai

base, model = sys.argv[1:3]
client = openai.OpenAI(base_url=base + "/v1", api_key="unused", max_retries=0)
messages = [{"role": "user", "content": "Where does this train go?"}]

assert model in [m.id for m in client.models.list()]
assert client.models.retrieve(model).id == model

answer = client.chat.completions.create(model=model, messages=messages, max_tokens=7)
assert answer.usage.completion_tokens == 7 and answer.choices[0].finish_reason == "length", answer
assert answer.choices[0].message.role == "assistant" and answer.choices[0].message.content, answer

text, finish, usage = "", None, None
for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=7, stream=True,
                                            stream_options={"include_usage": True}):
    for choice in chunk.choices:
        text += choice.delta.content or ""
        finish = choice.finish_reason or finish
    usage = chunk.usage or usage
assert text and finish == "length" and usage.completion_tokens == 7, (text, finish, usage)

answer = client.completions.create(model=model, prompt=["one", "two"], max_tokens=3)
assert sorted(c.index for c in answer.choices) == [0, 1], answer
answer = client.completions.create(model=model, prompt=[1, 2, 3], max_tokens=3)
assert answer.usage.prompt_tokens == 3, answer

with client.chat.completions.stream(model=model, messages=messages, max_tokens=5) as stream:
    kinds = [event.type for event in stream]
    assert "content.delta" in kinds and stream.current_completion_snapshot.choices[0].message.content, kinds

try:
    client.chat.completions.create(model="no-such-model", messages=messages, max_tokens=1)
    raise AssertionError("an unknown model was accepted")
except openai.NotFoundError as e:
    assert "no-such-model" in e.message or "not found" in e.message.lower(), e.message
try:
    client.chat.completions.create(model=model, messages=messages, max_tokens=1, temperature=9)
    raise AssertionError("a temperature of 9 was accepted")
except openai.BadRequestError as e:
    assert "temperature" in e.message.lower(), e.message

# What an agent sends back: a call with null content, and its result.
tools = [{"type": "function", "function": {"name": "where", "parameters": {"type": "object", "properties": {"train": {"type": "string"}}}}}]
history = messages + [
    {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "where", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "Berlin"}]
assert client.chat.completions.create(model=model, messages=history, tools=tools, max_tokens=3).choices[0].message.content

# A time-out of the client is told as one, and not tried again.
try:
    client.with_options(timeout=0.05).chat.completions.create(model=model, messages=messages, max_tokens=100000, extra_body={"ignore_eos": True})
    raise AssertionError("an endless answer came in time")
except openai.APITimeoutError:
    pass
# A stream that is left early leaves nothing behind: the next request works.
for chunk in client.chat.completions.create(model=model, messages=messages, max_tokens=100000, stream=True, extra_body={"ignore_eos": True}):
    break

claude = anthropic.Anthropic(base_url=base, api_key="unused", max_retries=0)
answer = claude.messages.create(model=model, messages=messages, max_tokens=7)
assert answer.usage.output_tokens == 7 and answer.stop_reason == "max_tokens" and answer.content[0].text, answer
with claude.messages.stream(model=model, messages=messages, max_tokens=7) as stream:
    assert "".join(stream.text_stream)
    assert stream.get_final_message().usage.output_tokens == 7
assert claude.messages.count_tokens(model=model, messages=messages).input_tokens > 0

for wrong, words in (({"max_tokens": 0}, "max_tokens"), ({"max_tokens": 1, "extra_body": {"temperature": 9}}, "emperature")):
    try:
        claude.messages.create(model=model, messages=messages, **wrong)
        raise AssertionError(f"accepted: {wrong}")
    except anthropic.BadRequestError as e:
        assert words in e.message, e.message
try:
    claude.messages.create(model="no-such-model", messages=messages, max_tokens=1)
    raise AssertionError("an unknown model was accepted")
except anthropic.NotFoundError as e:
    assert "no-such-model" in e.message, e.message
answer = claude.messages.create(model=model, max_tokens=3, tools=[{"name": "where", "input_schema": {"type": "object"}}], messages=messages + [
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "where", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]}])
assert answer.usage.output_tokens == 3, answer

response = client.responses.create(model=model, input="Where?", max_output_tokens=6)
assert response.output_text and response.usage.output_tokens == 6, response
print("ok")
