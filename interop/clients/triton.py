"""Uses Triton's own gRPC client as its users would.

    python triton.py HOST:PORT TEXT_MODEL [TENSOR_MODEL]

It ends with "ok" and status 0, or with the assertion that failed.
"""
import queue
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

address, model = sys.argv[1:3]
client = triton.InferenceServerClient(url=address)

assert client.is_server_live() and client.is_server_ready()
assert client.is_model_ready(model) and not client.is_model_ready("no-such-model")
metadata = client.get_model_metadata(model)
assert metadata.platform == "dynamo" and list(metadata.versions) == ["1"], metadata
assert [(i.name, i.datatype, list(i.shape)) for i in metadata.inputs] == [("text_input", "BYTES", [1]), ("streaming", "BOOL", [1])], metadata
assert [(o.name, list(o.shape)) for o in metadata.outputs] == [("text_output", [-1]), ("finish_reason", [-1])], metadata
config = client.get_model_config(model).config
assert config.name == model and config.backend == "dynamo" and config.input[1].optional and not config.input[0].optional, config


def text_inputs(text, streaming=None):
    prompt = triton.InferInput("text_input", [1], "BYTES")
    prompt.set_data_from_numpy(np.array([text.encode()], dtype=object))
    if streaming is None:
        return [prompt]
    flag = triton.InferInput("streaming", [1], "BOOL")
    flag.set_data_from_numpy(np.array([streaming]))
    return [prompt, flag]


answer = client.infer(model, text_inputs("Where does this train go?"), request_id="mine", parameters={"max_tokens": 7})
text = answer.as_numpy("text_output")[0].decode()
assert text and answer.as_numpy("finish_reason")[0] == b"length", answer.get_response()
assert answer.get_response().id == "mine" and answer.get_response().model_version == "1", answer.get_response()


def refused(code, words, name, inputs, **more):
    try:
        client.infer(name, inputs, **more)
    except InferenceServerException as e:
        assert code in e.status() and words in e.message(), (e.status(), e.message())
        return
    raise AssertionError(f"accepted: {name} {words}")


refused("NOT_FOUND", "Model 'no-such-model' not found", "no-such-model", text_inputs("x"))
refused("INVALID_ARGUMENT", "Streaming is not supported for this endpoint", model, text_inputs("x", True))
refused("INVALID_ARGUMENT", "Temperature must be between 0 and 2", model, text_inputs("x"), parameters={"temperature": 9.0})
wrong = triton.InferInput("foo", [1], "BYTES")
wrong.set_data_from_numpy(np.array([b"x"], dtype=object))
refused("INVALID_ARGUMENT", "Invalid input name: foo", model, [wrong])
refused("INVALID_ARGUMENT", "Missing required input", model, text_inputs("x", False)[1:])

# One stream, several requests: pieces of one answer, then a whole one.
results = queue.Queue()
client.start_stream(callback=lambda result, error: results.put((result, error)))
client.async_stream_infer(model, text_inputs("Where does this train go?", True), request_id="pieces", parameters={"max_tokens": 7})
streamed, finish = b"", b""
while not finish:
    result, error = results.get(timeout=30)
    assert error is None, error
    assert result.get_response().id == "pieces"
    streamed += result.as_numpy("text_output")[0]
    finish = result.as_numpy("finish_reason")[0]
assert finish == b"length" and streamed.decode() == text, (streamed, finish)
client.async_stream_infer(model, text_inputs("Where does this train go?", False), request_id="whole", parameters={"max_tokens": 7})
result, error = results.get(timeout=30)
assert error is None and result.as_numpy("text_output")[0].decode() == text, error
client.stop_stream()

if len(sys.argv) > 3:
    echo = sys.argv[3]
    metadata = client.get_model_metadata(echo)
    assert metadata.platform == "custom" and metadata.inputs[0].datatype == "TYPE_STRING", metadata
    config = client.get_model_config(echo).config
    assert config.model_transaction_policy.decoupled and config.input[1].optional, config
    kinds = {"INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16,
             "UINT32": np.uint32, "UINT64": np.uint64, "FP32": np.float32, "FP64": np.float64, "BOOL": np.bool_}
    sent = {name: np.array([[0, 1, 2], [3, 4, 5]]).astype(kind) for name, kind in kinds.items()}
    sent["INT64"][0][0], sent["UINT64"][0][0], sent["INT8"][0][0], sent["FP32"][0][0] = -(2**63), 2**64 - 1, -128, 0.1
    sent["BYTES"] = np.array([[b"a", b"", b"\x00\xff"], ["ü".encode(), b"d", b"e"]], dtype=object)
    inputs = []
    for name, values in sent.items():
        tensor = triton.InferInput(name, [2, 3], name)
        tensor.set_data_from_numpy(values)
        inputs.append(tensor)

    def check(result):
        for name, values in sent.items():
            got = result.as_numpy(name)
            assert got is not None and got.dtype == values.dtype and np.array_equal(got, values), (name, got)
        parameters = result.get_response().parameters
        assert parameters["processed"].bool_param and parameters["depth"].int64_param == 3, parameters

    check(client.infer(echo, inputs, parameters={"depth": 3, "name": "x"}))
    client.start_stream(callback=lambda result, error: results.put((result, error)))
    client.async_stream_infer(echo, inputs, parameters={"depth": 3})
    result, error = results.get(timeout=30)
    assert error is None, error
    check(result)
    client.async_stream_infer(echo, inputs, parameters={"malformed_response": True})
    result, error = results.get(timeout=30)
    assert error is not None, "a malformed answer was passed on"
    client.async_stream_infer(echo, inputs, parameters={"raise_exception": True})
    result, error = results.get(timeout=30)
    assert error is not None, "an exception was passed over"
    client.async_stream_infer(echo, inputs, parameters={"depth": 3})
    result, error = results.get(timeout=30)
    assert error is None, error
    check(result)
    client.stop_stream()
    refused("INVALID_ARGUMENT", "", echo, inputs, parameters={"raise_exception": True})
print("ok")
