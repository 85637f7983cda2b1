// Package kserve speaks the KServe v2 inference protocol over gRPC (service inference.GRPCInferenceService): liveness, readiness,
// metadata, configuration, inference and streamed inference, for text models and for tensor models.
//
// The handful of messages is encoded by hand on the primitives of the protocol-buffers wire: tensors go straight from the
// connection into the worker's request, and no generated code or reflection is linked in. The package knows nothing of routing.
package kserve
