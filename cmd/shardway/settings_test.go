package main

import (
	"testing"

	"github.com/shardway/shardway"
)

// TestShardLogin is what the shards' databases are asked with: the login of the
// store, unless a user or a password of their own is set.
func TestShardLogin(t *testing.T) {
	t.Parallel()
	store := address{credentials: shardway.Credentials{User: "anna", Password: "hers"}}
	for _, c := range []struct {
		user, password, wantUser, wantPassword string
	}{
		{"", "", "anna", "hers"},
		{"bert", "his", "bert", "his"},
		{"", "other", "anna", "other"},
		{"bert", "", "bert", ""}, // her password is not his
	} {
		s := &settings{values: map[string]given{}}
		if c.user != "" {
			s.values["shard-user"] = given{text: c.user}
		}
		if c.password != "" {
			s.values["shard-password"] = given{text: c.password}
		}
		_, got, err := s.shards(store)
		if err != nil || got.User != c.wantUser || got.Password != c.wantPassword {
			t.Errorf("user %q, password %q: logs in as %q with %q, %v", c.user, c.password, got.User, got.Password, err)
		}
	}
}
