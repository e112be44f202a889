package mapfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/mapfile"
)

// A file without the field maps is not one without maps: that is an empty list.
func TestReadNoMaps(t *testing.T) {
	t.Parallel()
	_, err := mapfile.Read(strings.NewReader(`{"format": "shardway map", "version": 1}`), "f.json")
	if want := `f.json, line 1, field "maps": is missing`; !errors.Is(err, shardway.ErrInvalid) || err.Error() != want {
		t.Errorf("Read = %v, want %s", err, want)
	}
	f, err := mapfile.Read(strings.NewReader(`{"format": "shardway map", "version": 1, "maps": []}`), "f.json")
	if err != nil || len(f.Maps) != 0 {
		t.Errorf("Read of no maps = %v, %v", f, err)
	}
}
