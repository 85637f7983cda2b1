"""Workers on the real runtime for the routes in the shape of vLLM and SGLang, with endpoints that list routes for reinforcement learning.

    python engine_worker.py MODEL_DIRECTORY FILE

The first token of a request says how it is answered. Every request is one line of JSON in the file.
"""
import asyncio
import json
import sys

import uvloop
from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model
from dynamo.runtime import dynamo_worker


def handler(name, out):
    async def generate(request, context):
        out.write(json.dumps({"model": name, "request": request}) + "\n")
        out.flush()
        ids = request["token_ids"]
        if ids[0] == 9:
            raise ValueError("bad value from the worker")
        if ids[0] == 8:
            raise RuntimeError("broke")
        if ids[0] == 7:
            return
        if name == "sgl":
            yield {"token_ids": [1], "engine_data": {"sglang_response": {"text": "", "output_ids": [1], "meta_info": {"id": "x"}}}}
            if ids[0] == 6:
                raise ValueError("bad value later")
            if ids[0] == 5:
                yield {"token_ids": [1]}
                return
            yield {"token_ids": [2], "finish_reason": "stop", "engine_data": {"sglang_response": {"output_ids": [1, 2], "meta_info": {"finish_reason": {"type": "stop"}}}}}
            return
        lp = {"log_probs": [-0.5], "top_logprobs": [[{"rank": 1, "token_id": 1, "token": "x", "logprob": -0.5}, {"rank": 2, "token_id": 3, "token": "y", "logprob": -12345.0}]]} if ids[0] == 4 else {}
        yield {"token_ids": [1], **lp}
        lp = {"log_probs": [float(-0.25)], "top_logprobs": [[]]} if ids[0] == 4 else {}
        last = {"engine_data": {"routed_experts": "abc", "kv_transfer_params": {"a": 1}, "prompt_logprobs": [None, {"5": {"logprob": -1.5, "rank": 1, "decoded_token": "z"}}]}} if ids[0] in (3, 4) else {}
        if ids[0] == 2:
            last = {"disaggregated_params": {"q": 2}}
        yield {"token_ids": [2], **({} if ids[0] == 1 else {"finish_reason": "length"}), **lp, **last}
    return generate


@dynamo_worker()
async def main(runtime):
    path, record = sys.argv[1:3]
    out = open(record, "a")
    serving = []
    for name, key in (("gen", "vllm_inference_v1_generate"), ("sgl", "sglang_generate")):
        endpoint = runtime.endpoint("dynamo.%s.generate" % name)
        config = ModelRuntimeConfig()
        config.set_engine_specific(key, "true")
        await register_model(ModelInput.Tokens, ModelType.Chat | ModelType.Completions, endpoint, path, name,
                             worker_type=WorkerType.Aggregated, runtime_config=config, kv_cache_block_size=16)
        serving.append(endpoint.serve_endpoint(handler(name, out)))
    async def rl(request, context):
        out.write(json.dumps({"model": "rl", "request": request}) + "\n")
        out.flush()
        yield {"routes": ["pause", "load", "load"], "system_url": " http://127.0.0.1:1 "}
    async def rlbad(request, context):
        yield {"status": "error", "message": "not today"}
    serving.append(runtime.endpoint("dynamo.gen.rl").serve_endpoint(rl))
    serving.append(runtime.endpoint("dynamo.sgl.rl").serve_endpoint(rlbad))
    await asyncio.gather(*serving)


uvloop.run(main())
