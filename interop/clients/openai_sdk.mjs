// Uses the official OpenAI SDK for Node as its users would.
//
//   NODE_PATH=... node openai_sdk.mjs BASE_URL MODEL
//
// It ends with "ok" and status 0, or with the assertion that failed.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import http from "node:http";

const OpenAI = createRequire(process.env.NODE_PATH + "/")("openai").default ?? createRequire(process.env.NODE_PATH + "/")("openai");
const [base, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: base + "/v1", apiKey: "unused", maxRetries: 0 });
const messages = [{ role: "user", content: "Where does this train go?" }];

const listed = [];
for await (const m of client.models.list()) listed.push(m.id);
assert(listed.includes(model));

const answer = await client.chat.completions.create({ model, messages, max_tokens: 7 });
assert.equal(answer.usage.completion_tokens, 7);
assert.equal(answer.choices[0].finish_reason, "length");

let text = "", usage;
for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 7, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(text, answer.choices[0].message.content);
assert.equal(usage.completion_tokens, 7);

const stream = client.chat.completions.stream({ model, messages, max_tokens: 5 });
assert((await stream.finalContent()).length > 0);

// What an agent sends back: a call with null content, and its result.
const tools = [{ type: "function", function: { name: "where", parameters: { type: "object", properties: { train: { type: "string" } } } } }];
const history = [...messages, { role: "assistant", content: null, tool_calls: [{ id: "c1", type: "function", function: { name: "where", arguments: "{}" } }] },
  { role: "tool", tool_call_id: "c1", content: "Berlin" }];
assert((await client.chat.completions.create({ model, messages: history, tools, max_tokens: 3 })).choices.length === 1);

const completion = await client.completions.create({ model, prompt: ["one", "two"], max_tokens: 3 });
assert.equal(completion.choices.length, 2);
const response = await client.responses.create({ model, input: "Where?", max_output_tokens: 6 });
assert.equal(response.usage.output_tokens, 6);
const kinds = [];
for await (const event of await client.responses.create({ model, input: "Where?", max_output_tokens: 6, stream: true })) kinds.push(event.type);
assert.equal(kinds[0], "response.created");
assert(["response.completed", "response.incomplete"].includes(kinds.at(-1)), kinds.at(-1));

// Errors are shown with their message, under the class that belongs to the status.
await assert.rejects(client.chat.completions.create({ model: "no-such-model", messages, max_tokens: 1 }),
  (e) => e instanceof OpenAI.NotFoundError && e.message.includes("Model not found") && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ model, messages, max_tokens: 1, temperature: 9 }),
  (e) => e instanceof OpenAI.BadRequestError && e.message.includes("Temperature must be between 0 and 2") && e.param === "temperature");

// A time-out of the client ends the request, and is told as one.
await assert.rejects(client.chat.completions.create({ model, messages, max_tokens: 100000, ignore_eos: true }, { timeout: 50 }),
  (e) => e instanceof OpenAI.APIConnectionTimeoutError);
// An aborted stream ends without an error of its own.
const aborted = await client.chat.completions.create({ model, messages, max_tokens: 100000, ignore_eos: true, stream: true });
for await (const chunk of aborted) { assert(chunk.choices); break; }

// A proxy that refuses twice as this server does when it is overloaded: the SDK waits for what Retry-After says and tries again.
let asked = 0;
const proxy = http.createServer((request, reply) => {
  if (++asked <= 2) {
    reply.writeHead(529, { "content-type": "application/json", "retry-after": "0" });
    reply.end('{"message":"Service temporarily overloaded","type":"Overloaded","code":529,"error":{"message":"Service temporarily overloaded","type":"overloaded_error","param":null,"code":"overloaded"}}');
    return;
  }
  request.pipe(http.request(base + request.url, { method: request.method, headers: request.headers }, (from) => {
    reply.writeHead(from.statusCode, from.headers);
    from.pipe(reply);
  }));
});
await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
const patient = new OpenAI({ baseURL: `http://127.0.0.1:${proxy.address().port}/v1`, apiKey: "unused", maxRetries: 3 });
assert.equal((await patient.chat.completions.create({ model, messages, max_tokens: 2 })).usage.completion_tokens, 2);
assert.equal(asked, 3);
proxy.close();
proxy.closeAllConnections();
console.log("ok");
