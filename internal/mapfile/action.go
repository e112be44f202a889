package mapfile

import (
	"fmt"

	"github.com/shardway/shardway"
)

// Kind says what an [Action] does.
type Kind string

// The kinds, in the order in which a plan has them.
const (
	CreateMap   Kind = "create shard map"
	RenameShard Kind = "rename shard"
	UpdateShard Kind = "update shard" // its location
	AddShard    Kind = "add shard"
	StatusShard Kind = "set shard status"
	Split       Kind = "split mapping"
	Delete      Kind = "delete mapping"
	Move        Kind = "move mapping"
	Status      Kind = "set mapping status"
	Add         Kind = "add mappings"
	Merge       Kind = "merge mappings"
	DeleteShard Kind = "delete shard"
)

// Action is one change on the way from one file to another. Which fields count
// depends on its kind.
type Action struct {
	Kind     Kind
	Map      string
	MapKind  shardway.MapKind
	KeyKind  shardway.KeyKind
	Shard    Shard                  // of shards: as it is afterwards; deleted: as it was
	From     string                 // RenameShard: the name before; Move: the shard before
	Mappings []Mapping              // of mappings: those that are changed, as they are before; Add: those that are added
	At       shardway.Key           // Split: where
	To       string                 // Move: the shard afterwards
	Status   shardway.MappingStatus // Move, Status: afterwards
}

// Moves reports whether keys get another owner: their rows do not move with them.
func (a Action) Moves() bool { return a.Kind == Move }

// Deletes reports whether keys, or a shard, leave the map.
func (a Action) Deletes() bool { return a.Kind == Delete || a.Kind == DeleteShard }

// String says what is done, for people.
func (a Action) String() string {
	switch a.Kind {
	case CreateMap:
		return fmt.Sprintf("create %s map %q of %s keys", a.MapKind, a.Map, a.KeyKind)
	case RenameShard:
		return fmt.Sprintf("rename shard %q to %q", a.From, a.Shard.Name)
	case UpdateShard:
		return fmt.Sprintf("change location of shard %q to %s", a.Shard.Name, describeLocation(a.Shard.Location))
	case AddShard:
		return fmt.Sprintf("add shard %q: %s", a.Shard.Name, describeShard(a.Shard))
	case StatusShard:
		return fmt.Sprintf("set shard %q %s", a.Shard.Name, a.Shard.Status)
	case DeleteShard:
		return fmt.Sprintf("delete shard %q: %s", a.Shard.Name, describeShard(a.Shard))
	default:
		return a.describeMappings()
	}
}

func (a Action) describeMappings() string {
	first := a.Mappings[0]
	what := shardway.Mapping{Range: first.Range}.Format(a.MapKind)
	switch a.Kind {
	case Split:
		return fmt.Sprintf("split %s at %s", what, shardway.Mapping{Range: shardway.Range{Low: a.At}}.Format(shardway.ListMap))
	case Delete:
		return fmt.Sprintf("delete %s of shard %q: its keys have no shard afterwards", what, first.Shard)
	case Move:
		return fmt.Sprintf("move %s from shard %q to %q, %s: rows are not moved", what, a.From, a.To, a.Status)
	case Status:
		return fmt.Sprintf("set %s of shard %q %s", what, first.Shard, a.Status)
	case Merge:
		return fmt.Sprintf("merge %s and %s", what, a.Mappings[1].Range)
	default: // Add
		if n := len(a.Mappings); n > 1 {
			return fmt.Sprintf("add %d mappings, the first is %s on shard %q", n, what, first.Shard)
		}
		return fmt.Sprintf("add %s to shard %q, %s", what, first.Shard, first.Status)
	}
}
