# Everything a checkout needs: `make demo` runs the product, `make test` checks it. Both do their own set-up.
GO ?= go
PYTHON ?= python3
CACHE := $(CURDIR)/.cache
MODELS := $(CACHE)/models
BINARY := bin/signalbox

.PHONY: build demo test test-go test-kubernetes test-llama lint models interop-python chaos bench generate clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BINARY) ./cmd/signalbox

# The demo needs no store, so it leaves out the clients of etcd and Kubernetes, which take as long to compile as all the rest.
demo:
	CGO_ENABLED=0 $(GO) build -tags lean -o $(BINARY)-demo ./cmd/signalbox
	$(BINARY)-demo demo

test:
	./scripts/test

test-go:
	$(GO) test ./...

# Discovery on a real Kubernetes API server, built here the first time.
test-kubernetes:
	./scripts/test-kubernetes

# Plain servers as workers, with a real llama.cpp, built here the first time.
test-llama:
	./scripts/test-llama

lint:
	$(GO) vet ./...
	$(GO) vet -tags lean ./cmd/signalbox
	test -z "$$(gofmt -l .)"
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# Tokenizers and chat templates of real models, for the tests that compare with recorded answers.
models:
	./scripts/models $(MODELS)

# Ten minutes of a fleet whose parts are killed, paused and restarted under load; a short run of it is part of the tests.
# SIGNALBOX_CHAOS_SEED repeats a run.
chaos:
	SIGNALBOX_CHAOS_SECONDS=$${SIGNALBOX_CHAOS_SECONDS:-600} $(GO) test ./interop -run TestChaos -v -count=1 -timeout 30m

# Python environments with the real peers, for the interop tests.
interop-python:
	./scripts/interop-python $(CACHE)

bench: build
	./scripts/bench

generate:
	$(GO) run ./cmd/signalbox docs > docs/configuration.md

clean:
	rm -rf bin .cache
