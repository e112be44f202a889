package store

import (
	"context"
	"fmt"

	"github.com/shardway/shardway"
)

// Version is the version of a store's tables. Global and local stores have
// versions of their own and are upgraded separately.
//
// Within one major version all programs read all stores: lookups, the change
// feed and checks of connections work whichever of the two is newer. A program
// changes stores of every newer minor version, and of older ones down to
// [Writable]. A store of another major version is refused before anything is
// read or written.
type Version struct{ Major, Minor int }

// Current is the version that this program creates and upgrades to, of global
// and local stores alike.
//
//	1.0  the first one
//	1.1  global: an index by lock token. Local: a column by which PostgreSQL
//	     grants the right to lock rows; in MySQL an index that keeps forgetting
//	     old operations cheap
var Current = Version{Major: 1, Minor: 1}

// Writable is the oldest version that this program's changes need. A store that
// is older is read, and changed only after an upgrade.
var Writable = Version{Major: 1, Minor: 0}

// String returns major and minor as in 1.0.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// CheckRead returns an error that matches [shardway.ErrStoreVersion] when this
// program cannot read a store of the version. kind is global or local.
func (v Version) CheckRead(kind string) error {
	if v.Major == Current.Major {
		return nil
	}
	advice := "use a newer program"
	if v.Major < Current.Major {
		advice = "upgrade the store"
	}
	return fmt.Errorf("%s store has version %s, this program works with %d.x: %s: %w",
		kind, v, Current.Major, advice, shardway.ErrStoreVersion)
}

// CheckWrite is CheckRead for a store that is to be changed.
func (v Version) CheckWrite(kind string) error {
	if err := v.CheckRead(kind); err != nil {
		return err
	}
	if v.Minor >= Writable.Minor {
		return nil
	}
	return fmt.Errorf("%s store has version %s, this program reads it and changes stores from %s on: run \"shardway upgrade\" first: %w",
		kind, v, Writable, shardway.ErrStoreVersion)
}

// Upgrader is an ability of stores that outlive a program: the tables of an
// older minor version become those of [Current].
type Upgrader interface {
	// Upgrade returns the version found and the one that is there now. A store
	// that is current, or newer, stays as it is. Rows stay as they are. It can
	// be run again after an interruption, and by several programs at once, while
	// others use the store. It returns ErrNoStore, and ErrStoreVersion for
	// another major version.
	Upgrade(ctx context.Context) (from, to Version, err error)
}
