"""A tensor worker on the real runtime: it answers with the tensors and parameters that it got.

    python echo_worker.py NAME

Parameters choose how it misbehaves: malformed_response, raise_exception.
"""
import sys

import uvloop
from dynamo.llm import ModelInput, ModelType, WorkerType, register_model
from dynamo.runtime import dynamo_worker


def field(number, value):
    """One field of a protocol-buffers message: an integer, a text or a message."""
    if isinstance(value, int):
        return bytes([number << 3 & 0x7F | (0x80 if number > 15 else 0)] + ([number >> 4] if number > 15 else []) + [value])
    data = value.encode() if isinstance(value, str) else value
    return bytes([number << 3 & 0x7F | 2 | (0x80 if number > 15 else 0)] + ([number >> 4] if number > 15 else []) + [len(data)]) + data


ANY = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # -1, packed
TYPE_STRING, TYPE_INT32 = 13, 8


def triton_config(name):
    first = field(1, "input") + field(2, TYPE_STRING) + field(4, ANY)
    second = field(1, "optional_input") + field(2, TYPE_INT32) + field(4, ANY) + field(8, 1)
    output = field(1, "output") + field(2, TYPE_STRING) + field(3, ANY)
    return field(1, name) + field(2, "custom") + field(5, first) + field(5, second) + field(6, output) + field(19, field(1, 1))


async def generate(request):
    parameters = dict(request.get("parameters") or {})
    if "raise_exception" in parameters:
        raise ValueError("raised on purpose")
    if "malformed_response" in parameters:
        request["tensors"][0]["data"] = {"values": [0]}
    parameters["processed"] = {"bool": True}
    yield {"model": request["model"], "tensors": request["tensors"], "parameters": parameters}


@dynamo_worker()
async def main(runtime):
    name = sys.argv[1]
    endpoint = runtime.endpoint(f"tensor.{name}.generate")
    await register_model(ModelInput.Tensor, ModelType.TensorBased, endpoint, name, worker_type=WorkerType.Aggregated,
                         tensor_model_config={"name": "", "inputs": [], "outputs": [], "triton_model_config": triton_config(name)})
    await endpoint.serve_endpoint(generate)


uvloop.run(main())
