// Package upstream makes plain inference servers (vLLM, SGLang, llama.cpp, anything that speaks OpenAI's API) workers: it finds out what
// they serve, watches whether they are well, sends requests to them over HTTP and follows the KV events that they publish over ZeroMQ.
//
// There are two ways to ask a server. Where its tokenizer is known the prompt goes to it as token ids, and what comes back are token ids
// where the server tells them: then templates, parsers, stop strings, migration and the hashes of blocks are this product's own. Where it
// is not, the conversation goes to it as text, in the API's own shape, and the server does all of that itself.
//
// The package knows nothing of Dynamo: no discovery, no cards, no request plane. It gets requests in the neutral types of package
// inference and tells a [Roster] which servers can be sent to.
package upstream
