package sqlshard

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
)

// A map with shards on MongoDB too: whoever asks for one here is told which
// adapter it takes.
func TestShardOnMongoDB(t *testing.T) {
	t.Parallel()
	_, err := (&databases{}).engine("mongodb")
	if !errors.Is(err, shardway.ErrInvalid) || !strings.Contains(err.Error(), "mongoshard.For") {
		t.Errorf("a shard on MongoDB = %v, want ErrInvalid that names the adapter", err)
	}
}
