"""A worker on the real runtime that writes down what it is asked.

    python capture_worker.py MODEL_DIRECTORY NAME FILE [SETTINGS]

Every request is one line of JSON in the file. SETTINGS are members of the card's runtime configuration, as JSON.
"""
import json
import sys

import uvloop
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.runtime import dynamo_worker


async def generate(request, context):
    with open(sys.argv[3], "a") as out:
        print(json.dumps(request), file=out, flush=True)
    yield {"token_ids": [1, 2], "finish_reason": "stop"}


@dynamo_worker()
async def main(runtime):
    path, name = sys.argv[1:3]
    settings = ModelRuntimeConfig()
    for member, value in json.loads((sys.argv[4:] or ["{}"])[0]).items():
        setattr(settings, member, value)
    endpoint = runtime.endpoint(f"dynamo.{name}.generate")
    await register_model(ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint, path, name, worker_type=WorkerType.Aggregated,
                         runtime_config=settings, kv_cache_block_size=16)
    await endpoint.serve_endpoint(generate)


uvloop.run(main())
