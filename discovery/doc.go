// Package discovery tells which workers, models and event publishers exist, and announces our own.
//
// A fleet shares a small key-value store: a directory, etcd, Kubernetes objects, or a map in this process. Each process
// writes records under its own instance id and keeps them alive; everybody reads everybody's. This package holds what all
// stores have in common: the four kinds of record ([Instance], [Model], [EventChannel], [EventSource]), the buckets and keys
// they live under, and the [Backend] interface. The stores are in the subpackages mem, file, etcd and kube.
//
// It must not know what a record is used for: model cards stay raw JSON here, addresses stay strings.
package discovery
