package mapfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shardway/shardway"
)

// batch is how many mappings are added with one change.
const batch = 5000

// Plan returns the changes that make the maps of wanted what they are there,
// where current is what they are now. Maps that wanted does not have are left
// alone, and so are locks. Each change can be made when those before it have
// been; after any number of them, Plan over what is there then returns the rest.
//
// A map whose kind or key kind differs is an error that matches
// [shardway.ErrWrongType]: nothing leads from one to the other.
func Plan(current, wanted File) ([]Action, error) {
	current.sort()
	wanted.sort()
	var all []Action
	for _, want := range wanted.Maps {
		is, there := current.Map(want.Name)
		if there && (is.Kind != want.Kind || is.KeyKind != want.KeyKind) {
			return nil, fmt.Errorf("shard map %q is a %s, and a %s in the file: %w", want.Name, describeMap(is), describeMap(want), shardway.ErrWrongType)
		}
		p := &planner{is: is, want: want}
		if !there {
			p.is.Kind, p.is.KeyKind = want.Kind, want.KeyKind
			p.add(Action{Kind: CreateMap})
		}
		p.plan()
		all = append(all, p.actions...)
	}
	return all, nil
}

// planner plans one map.
type planner struct {
	is, want Map
	actions  []Action
}

func (p *planner) add(a Action) {
	a.Map, a.MapKind, a.KeyKind = p.want.Name, p.want.Kind, p.want.KeyKind
	p.actions = append(p.actions, a)
}

func (p *planner) plan() {
	p.rename()
	m := p.mappings()
	var last []Action // of shards, when all mappings are in place
	walk(p.is.Shards, p.want.Shards, func(x, y Shard) int { return strings.Compare(x.Name, y.Name) }, func(is, want *Shard) {
		switch {
		case want == nil:
			last = append(last, Action{Kind: DeleteShard, Shard: *is})
		case is == nil:
			made := *want
			if m.gets[want.Name] { // one that is offline takes none
				made.Status = shardway.ShardOnline
			}
			p.add(Action{Kind: AddShard, Shard: made})
			if made.Status != want.Status {
				last = append(last, Action{Kind: StatusShard, Shard: *want})
			}
		default:
			last = append(last, p.update(*is, *want, m.gets[want.Name])...)
		}
	})
	for _, phase := range [][]Action{m.splits, m.deletes, m.moves, m.statuses, m.adds(), m.merges, last} {
		for _, a := range phase {
			p.add(a)
		}
	}
}

// update plans a shard that is there and stays. It returns what comes last.
func (p *planner) update(is, want Shard, gets bool) (last []Action) {
	if describeLocation(is.Location) != describeLocation(want.Location) {
		next := want
		next.Status = is.Status
		p.add(Action{Kind: UpdateShard, Shard: next})
	}
	status := is.Status
	if gets && status == shardway.ShardOffline {
		next := want
		next.Status = shardway.ShardOnline
		p.add(Action{Kind: StatusShard, Shard: next})
		status = shardway.ShardOnline
	}
	if status != want.Status {
		last = append(last, Action{Kind: StatusShard, Shard: want})
	}
	return last
}

// rename finds shards that have kept their database under another name.
func (p *planner) rename() {
	p.is.Shards, p.is.Mappings = slices.Clone(p.is.Shards), slices.Clone(p.is.Mappings)
	for i, is := range p.is.Shards {
		if _, stays := p.want.Shard(is.Name); stays {
			continue
		}
		for _, want := range p.want.Shards {
			if _, there := p.is.Shard(want.Name); there || !want.Location.Overlaps(is.Location) {
				continue
			}
			next := is
			next.Name = want.Name
			p.add(Action{Kind: RenameShard, Shard: next, From: is.Name})
			p.is.Shards[i] = next
			for j := range p.is.Mappings {
				if p.is.Mappings[j].Shard == is.Name {
					p.is.Mappings[j].Shard = next.Name
				}
			}
			break
		}
	}
	slices.SortFunc(p.is.Shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
}
