"""Asks endpoints of the request plane with the real client. Each line of standard input is a question {"endpoint", "request", "instance"?};
each line of the answer is {"items": [...]} or {"error": text}."""
import asyncio
import json
import sys

import uvloop
from dynamo.runtime import DistributedRuntime, dynamo_worker


@dynamo_worker()
async def main(runtime: DistributedRuntime):
    loop = asyncio.get_running_loop()
    clients = {}
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        question = json.loads(line)
        name = question["endpoint"]
        try:
            if name not in clients:
                clients[name] = await runtime.endpoint(name).client()
                await asyncio.wait_for(clients[name].wait_for_instances(), 60)
            items = []
            async for item in await clients[name].generate(question["request"]):
                items.append({"data": item.data(), "event": item.event(), "error": item.is_error(), "comments": item.comments()})
            answer = {"items": items}
        except Exception as failure:  # what went wrong is the answer
            answer = {"error": str(failure)}
        print(json.dumps(answer), flush=True)


uvloop.run(main())
