package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/shardway/shardway/internal/mongotest"
)

// TestMongoScript runs the scripts that look at MongoDB deployments: SET is a replica set with a tagged secondary and
// one that lags, ROUTERS are three mongos of which one is localhost, BALANCED is a load balancer, DOWN a server that
// does not answer. They are what follows mongodb:// in a URI.
func TestMongoScript(t *testing.T) {
	t.Parallel()
	set := mongotest.New(t, mongotest.Options{Kind: mongotest.ReplicaSet, Streaming: true})
	set.Server(1).SetTags(map[string]string{"zone": "a"})
	set.Server(2).SetLag(5 * time.Minute)
	routers := mongotest.New(t, mongotest.Options{Kind: mongotest.Sharded, Hosts: []string{"127.0.0.1", "127.0.0.1", "localhost"}})
	balanced := mongotest.New(t, mongotest.Options{Kind: mongotest.LoadBalanced})
	down := mongotest.New(t, mongotest.Options{Kind: mongotest.Standalone})
	down.Server(0).Stop()
	testscript.Run(t, scripts("testdata/mongo", func(e *testscript.Env) error {
		for name, c := range map[string]*mongotest.Cluster{"SET": set, "ROUTERS": routers, "BALANCED": balanced, "DOWN": down} {
			hosts := ""
			for i := range c.Servers() {
				if i > 0 {
					hosts += ","
				}
				hosts += c.Server(i).Addr()
			}
			e.Setenv(name, hosts)
			for i := range c.Servers() {
				e.Setenv(name+string(rune('0'+i)), c.Server(i).Addr())
			}
		}
		return nil
	}))
	for i := range set.Servers() {
		for _, command := range set.Server(i).Commands() {
			if command.Name != "endSessions" {
				t.Errorf("server %d was sent %s", i, command.Name)
			}
		}
	}
}

func TestSecretsOf(t *testing.T) {
	t.Parallel()
	for _, uri := range []string{
		"mongodb://app:hush@db1/", "mongodb://app:hush@@db1/?replicaSet=x@y", "mongodb://app:hush/@db1", "app:hush@db1",
		"mongodb://db1/?proxyPassword=hush", "mongodb://db1/?a=b;x=hush", "mongodb://app:%68ush@db1/",
	} {
		d := &deployment{secrets: secretsOf(uri)}
		if got := d.redact(errors.New("reading " + uri)).Error(); strings.Contains(got, "hush") || strings.Contains(got, "%68ush") {
			t.Errorf("%s: %s", uri, got)
		}
	}
	if got := secretsOf("mongodb://db1,db2/?replicaSet=rs0&readPreference=secondary"); len(got) != 0 {
		t.Errorf("%q are no secrets", got)
	}
}

// A replica set's name cannot write lines of its own.
func TestNameOfADeploymentIsOneLine(t *testing.T) {
	t.Parallel()
	d, err := readDeployment("mongodb://db1/?replicaSet=a%0ab%1b[2J")
	if err != nil {
		t.Fatal(err)
	}
	if want := "mongodb://db1/?replicaSet=a%0Ab%1B%5B2J"; d.name != want {
		t.Errorf("%q, want %q", d.name, want)
	}
}
