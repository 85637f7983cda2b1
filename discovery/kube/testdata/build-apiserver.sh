#!/bin/sh
# Builds kube-apiserver from its Go module, in the version that belongs to our client-go, for the tests of this package:
#
#   sh discovery/kube/testdata/build-apiserver.sh /tmp/kube-apiserver
#   SIGNALBOX_KUBE_APISERVER=/tmp/kube-apiserver go test ./discovery/kube
#
# The module's parts are published apart, under versions that its own go.mod does not name; hence the replacements. Takes some
# ten minutes and 2 GB of build cache the first time.
set -eu
output=$(realpath -m "${1:?usage: build-apiserver.sh OUTPUT}")
client=$(go list -m -f '{{.Version}}' k8s.io/client-go)
server=v1.${client#v0.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export GOFLAGS=-mod=mod
go mod init apiserver
list=$(go mod download -json "k8s.io/kubernetes@$server" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
sed -n 's/^[[:space:]]*\(k8s.io\/[a-z-]*\) v0\.0\.0$/\1/p' "$list" | sort -u | while read -r part; do
	go mod edit -replace "$part=$part@$client"
done
go get "k8s.io/kubernetes/cmd/kube-apiserver@$server"
go build -trimpath -ldflags '-s -w' -o "$output" k8s.io/kubernetes/cmd/kube-apiserver
