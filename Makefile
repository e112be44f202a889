# Everything a developer runs; `make` lists it. CI runs .ci/run, which calls `make test`.

# Engines that must be tested, not skipped. A machine without them: make test SHARDWAY_TEST_REQUIRE=
export SHARDWAY_TEST_REQUIRE ?= postgres,mysql,mongodb

# How long make chaos runs.
MINUTES ?= 10

# golangci-lint keeps its two hundred dependencies in a module file of its own.
LINTER = go tool -modfile=lint.mod golangci-lint

.DEFAULT_GOAL := help
.PHONY: help test test-deps check fmt vet lint tidy bench chaos chaos-faults demo

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: test-deps ## install what is missing of PostgreSQL, PgBouncer, MariaDB and gcc (Debian), then run every test with the race detector
	@test -n "$$SHARDWAY_TEST_SQLSERVER" || echo 'SKIPPED: nothing is tested on SQL Server (SHARDWAY_TEST_SQLSERVER names no server)'
	go test -race -shuffle=on -timeout 20m ./...

test-deps: ## only install what the tests need and do not find
	@scripts/test-deps.sh

check: tidy vet lint test ## everything a change must pass: formatting, vet, linters, tests

fmt: ## format the code (gofumpt)
	$(LINTER) fmt

vet: ## go vet, sharing the race detector's build with the tests
	go vet -race ./...

lint: ## golangci-lint with formatting; the first run builds the linter, about four minutes
	$(LINTER) run

tidy: ## fail if go.mod or go.sum is not tidy
	go mod tidy -diff

bench: test-deps ## run the benchmarks and record them in docs/bench
	scripts/bench.sh

chaos: test-deps ## clients against servers that crash, for MINUTES=10, and a judge of what is left: docs/chaos.md
	SHARDWAY_CHAOS=$(MINUTES)m go test -count=1 -v -timeout 120m -run 'TestChaos$$' ./internal/chaos

chaos-faults: test-deps ## the same with faults planted on purpose, each of which must be noticed
	SHARDWAY_CHAOS_FAULTS=1 go test -count=1 -v -timeout 120m -run TestChaos_faults ./internal/chaos

demo: ## a sharded customer database on embedded SQLite, step by step
	go run ./cmd/shardway demo
