// Package storetest is the conformance suite of the stores: every
// implementation of [store.Global] and [store.Local] passes it.
//
//	func TestGlobal(t *testing.T) {
//		storetest.Global(t, func(t *testing.T) store.Global { return openDeployed(t) })
//	}
//
//	func TestLocal(t *testing.T) {
//		storetest.Local(t, func(t *testing.T) store.Local { return openEmpty(t) })
//	}
//
// [Undeployed] tests a database before Deploy, and [Compare] runs random
// changes on two stores side by side: the one under test and memstore.
//
// The functions given to the suite open a store that belongs to the calling
// test alone and release it with t.Cleanup. All subtests are parallel. The
// suite reads and writes through the contract only, so it can be run against a
// server with any collation, isolation level and time zone.
package storetest

import (
	"context"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

// Global tests a global store. open returns an empty, deployed store private
// to the test t. When the store is a [store.Deployer], deploying over it is
// tested too.
func Global(t *testing.T, open func(t *testing.T) store.Global) {
	run := func(name string, test func(w *world)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&world{T: t, Global: open(t)})
		})
	}
	run("deploying", testDeployAgain)
	run("deploying_at_once_ends_with_one_store", testDeployAtOnce)
	run("map", testMaps)
	run("map_names_are_bytes", testMapNames)
	run("dropping_a_map", testDropMap)
	run("shard", testShards)
	run("shard_names_are_bytes", testShardNames)
	run("keys_of_every_kind", testKeys)
	run("mapping_query_on_a_range_map", testRangeQueries)
	run("mapping_query_on_a_list_map", testListQueries)
	run("operation_is_kept_exactly", testOperationKept)
	run("preparing", testPrepare)
	run("stale_rows_are_refused", testPrepareStale)
	run("publishing", testPublish)
	run("aborting", testAbort)
	run("lease", testLease)
	run("horizon", testHorizonOfOperations)
	run("horizon_of_several_maps_at_once", testHorizonAtOnce)
	run("lock", testLock)
	run("history", testHistory)
	run("delta_is_written_whole_or_not_at_all", testAtomic)
	run("delta_is_written_in_the_order_of_its_fields", testOrder)
	run("lookup_in_a_list_map", testLookupList)
	run("lookup_in_a_range_map", testLookupRange)
	run("routers_see_published_rows_only", testPublishedOnly)
	run("large_map", testLargeMap)
	run("changes", testChanges)
	run("values_are_copies", testCopies)
	run("context", testContext)
	run("errors_pass_through", testErrorsPass)
	run("close_is_idempotent", func(w *world) { testClose(w.T, w.Global.Close) })
	run("updates_of_one_map_run_one_after_the_other", testSerial)
	run("updates_of_all_maps_at_once", testSerialMaps)
	run("reads_are_of_one_state", testOneState)
}

// Deployable is a global store that can be deployed.
type Deployable interface {
	store.Global
	store.Deployer
}

// Local tests a local store. open returns a store that is not deployed,
// private to the test t.
func Local(t *testing.T, open func(t *testing.T) store.Local) {
	run := func(name string, test func(l *site)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&site{T: t, Local: open(t)})
		})
	}
	run("before_deploy_there_is_no_store", testLocalNoStore)
	run("deploying", testLocalDeploy)
	run("deploying_at_once", testLocalDeployAtOnce)
	run("reading", testLocalRead)
	run("keys_of_every_kind", testLocalKeys)
	run("state_table", testStepTable)
	run("epochs", testStepEpochs)
	run("maps_that_differ", testStepDiffers)
	run("every_kind_of_change_is_made_and_unmade", testStepChanges)
	run("two_maps_in_one_database", testTwoMaps)
	run("large_step", testLargeStep)
	run("old_operations_are_never_applied_again", testForgetting)
	run("what_has_ended_is_forgotten", testHorizon)
	run("horizon_is_a_bound", testHorizonBounds)
	run("same_step_at_once_is_applied_once", testStepAtOnce)
	run("applying_and_undoing_at_once_ends_undone", testStepRace)
	run("values_are_copies", testLocalCopies)
	run("context", testLocalContext)
	run("close_is_idempotent", func(l *site) { testClose(l.T, l.Local.Close) })
}

// Undeployed tests a global store in an empty database, and its Deploy. open
// returns a store that is not deployed, private to the test t.
func Undeployed(t *testing.T, open func(t *testing.T) Deployable) {
	t.Run("before_deploy_there_is_no_store", func(t *testing.T) {
		t.Parallel()
		testNoStore(t, open(t))
	})
	t.Run("deploying_at_once_ends_with_one_store", func(t *testing.T) {
		t.Parallel()
		testDeployFirstAtOnce(t, open(t))
	})
	t.Run("cancelled_deploy_leaves_no_store", func(t *testing.T) {
		t.Parallel()
		g := open(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Deploy(ctx, false); !isCancelled(err) {
			t.Errorf("Deploy = %v, want context.Canceled", err)
		}
		_, err := g.Describe(t.Context())
		wantError(t, "Describe", err, shardway.ErrNoStore)
	})
}

func testClose(t *testing.T, close func() error) {
	for range 3 {
		if err := close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
}
