package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/recovery"
	"github.com/shardway/shardway/selection"
	"github.com/shardway/shardway/store"
	"github.com/shardway/shardway/store/sqlstore"
)

// Whose rights the logins should have.
const (
	asCatalog     = "catalog"
	asApplication = "application"
)

// storeWithin bounds the look at one store.
const storeWithin = 10 * time.Second

// doctor looks at one global store and all that belongs to it.
type doctor struct {
	*session
	as           string
	maps, shards int

	mu       sync.Mutex // guards the fields below
	findings []finding
	silent   map[shardway.ShardID]bool // shards whose local store has been found wrong already
}

func (d *doctor) find(f finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.Text = message(errors.New(f.Text))
	d.findings = append(d.findings, f)
}

// examine looks at everything. What cannot be read is a finding.
func (d *doctor) examine(ctx context.Context) {
	d.silent = map[shardway.ShardID]bool{}
	global, err := d.global.Describe(ctx)
	if err != nil {
		d.find(finding{Severity: grave, Check: "store", Text: fmt.Sprintf("global store at %s: %v", d.address.location, err), Mend: mendStore(err)})
		return
	}
	for _, f := range judgeVersion("global", global.Version) {
		d.find(f)
	}
	d.rights(ctx, "global store", d.address.engine.Name(), d.global, d.rightsOn(d.address.engine.Name(), true), finding{})
	d.clock(ctx, "the global store", d.global, finding{})
	var now time.Time // of the store, by which locks and leases run out
	if now, err = d.global.Now(ctx); err != nil {
		now = time.Now()
	}
	maps, facts, ops, err := d.read(ctx, now)
	if err != nil {
		d.find(finding{Severity: grave, Check: "store", Text: fmt.Sprintf("reading the global store: %v", err)})
		return
	}
	d.maps = len(maps)
	for _, f := range judgeOperations(ops, now) {
		d.find(f)
	}
	for _, f := range facts {
		d.shards += len(f.shards)
		if d.as == asApplication {
			continue
		}
		for _, found := range f.judge() {
			d.find(found)
		}
	}
	d.locals(ctx, facts, global.ID)
	if d.as == asCatalog {
		for _, f := range facts {
			d.compare(ctx, f)
		}
		d.strays(ctx, facts)
	}
	for _, f := range facts {
		d.servers(ctx, f)
	}
}

// read collects what the global store says, in one state.
func (d *doctor) read(ctx context.Context, now time.Time) (maps []shardway.ShardMap, facts []*mapFacts, ops []store.Operation, err error) {
	bar := newProgress(d.errs, "looking at mappings", 0)
	defer bar.end()
	err = d.global.View(ctx, func(tx store.Reader) (err error) {
		facts = nil
		if maps, err = tx.ShardMaps(ctx); err != nil {
			return err
		}
		for _, m := range maps {
			f := newMapFacts(m, now)
			rows, err := tx.Shards(ctx, m.ID)
			if err != nil {
				return err
			}
			f.take(rows)
			facts = append(facts, f)
			if d.as == asApplication { // which reads mappings for lookups alone, and no operations
				continue
			}
			for row, err := range tx.Mappings(ctx, store.MappingQuery{Map: m}) {
				if err != nil {
					return err
				}
				f.see(row)
				bar.step()
			}
		}
		if d.as == asCatalog {
			ops, err = tx.Operations(ctx, store.OperationQuery{})
		}
		return err
	})
	return maps, facts, ops, err
}

// locals looks at every local store, a few at a time, each database once.
func (d *doctor) locals(ctx context.Context, facts []*mapFacts, globalID string) {
	const atOnce = 16
	bar := newProgress(d.errs, "looking at shards", d.shards)
	defer bar.end()
	seats := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	seen := map[string]*sync.Once{}
	for _, f := range facts {
		for _, sh := range f.shards {
			at := sh.Location.String()
			if seen[at] == nil {
				seen[at] = &sync.Once{}
			}
			once := seen[at]
			seats <- struct{}{}
			running.Go(func() {
				defer func() { <-seats }()
				ok := d.local(ctx, sh, finding{Map: f.m.Name, Shard: sh.Name}, globalID, once)
				if !ok {
					d.mu.Lock()
					d.silent[sh.ID] = true
					d.mu.Unlock()
				}
				bar.step()
			})
		}
	}
	running.Wait()
}

// local looks at the local store of a shard. It reports false when it cannot be
// compared with the global one. What is wrong with the database as such is said once.
func (d *doctor) local(ctx context.Context, sh shardway.Shard, of finding, globalID string, once *sync.Once) bool {
	ctx, cancel := context.WithTimeout(ctx, storeWithin)
	defer cancel()
	opened, err := d.session.locals.Open(ctx, sh.Location)
	var found store.Description
	if err == nil {
		found, err = d.describe(ctx, opened)
	}
	if err == nil && found.ID != "" && found.ID != globalID {
		err = fmt.Errorf("%w: %s", shardway.ErrForeignStore, found.ID)
	}
	if err != nil {
		of.Severity, of.Check = grave, "store"
		of.Text, of.Mend = fmt.Sprintf("local store at %s: %v", sh.Location, err), mendLocal(err, of)
		d.find(of)
		return false
	}
	local, ok := opened.(*sqlstore.Local)
	if !ok {
		return true
	}
	once.Do(func() {
		if d.as == asCatalog {
			for _, f := range judgeVersion("local", found.Version) {
				f.Map, f.Shard, f.Mend = of.Map, of.Shard, fmt.Sprintf("shardway upgrade --shard %s --map %s", word(of.Shard), word(of.Map))
				d.find(f)
			}
		}
		d.rights(ctx, "local store at "+sh.Location.String(), sh.Location.Engine, local, d.rightsOn(sh.Location.Engine, false), of)
		d.clock(ctx, "the shard", local, of)
	})
	return true
}

// describe is Describe, or the least that an application may ask.
func (d *doctor) describe(ctx context.Context, local store.Local) (store.Description, error) {
	if sql, ok := local.(*sqlstore.Local); ok && d.as == asApplication {
		_, err := sql.Now(ctx)
		return store.Description{}, err
	}
	return local.Describe(ctx)
}

// trier is a store whose rights can be tried.
type trier interface {
	TryRights(ctx context.Context, table, privilege string) error
}

// rightsOn are the rights that a login should have.
func (d *doctor) rightsOn(engine string, global bool) []right {
	g, known := granters[engine]
	switch {
	case global && d.as == asCatalog:
		return catalogRights
	case global:
		return routerRights
	case d.as == asCatalog:
		return catalogLocalRights
	case known:
		return g.locking(applicationRights, "local_mappings", "local_shards")
	}
	return applicationRights
}

// rights tries every right and names what is missing in one finding.
func (d *doctor) rights(ctx context.Context, what, engine string, s trier, rights []right, of finding) {
	var missing []string
	var cause error
	for _, r := range rights {
		for privilege := range strings.SplitSeq(r.privileges, ", ") {
			err := s.TryRights(ctx, r.table, privilege)
			if err == nil || errors.Is(err, shardway.ErrNoStore) {
				continue
			}
			missing = append(missing, privilege+" on "+r.table)
			if cause == nil {
				cause = err
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	const few = 4
	text := strings.Join(missing[:min(few, len(missing))], ", ")
	if more := len(missing) - few; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	of.Severity, of.Check = grave, "rights"
	of.Text = fmt.Sprintf("%s: the login cannot %s: %v", what, text, cause)
	if _, ok := granters[engine]; ok {
		of.Mend = fmt.Sprintf("shardway grants %s --%s USER", engine, d.as)
	}
	d.find(of)
}

// clocked is a store that tells its time.
type clocked interface {
	Now(ctx context.Context) (time.Time, error)
}

func (d *doctor) clock(ctx context.Context, whose string, s clocked, of finding) {
	sent := time.Now()
	now, err := s.Now(ctx)
	if err != nil {
		return // the store is a finding already, or will be
	}
	for _, f := range judgeClock(whose, now, sent, time.Now()) {
		f.Map, f.Shard = of.Map, of.Shard
		d.find(f)
	}
}

// compare looks for differences between the global map and the local maps.
func (d *doctor) compare(ctx context.Context, f *mapFacts) {
	var ids []shardway.ShardID
	for _, sh := range f.shards {
		if !d.silent[sh.ID] {
			ids = append(ids, sh.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	bar := newProgress(d.errs, "comparing local maps of "+f.m.Name, len(ids))
	defer bar.end()
	r, err := recovery.New(d.global, d.session.locals, d.Catalog, recovery.Config{Progress: func(recovery.Progress) { bar.step() }})
	var reports []recovery.Report
	if err == nil {
		reports, err = r.Detect(ctx, f.m, ids...)
	}
	if err != nil {
		d.find(finding{Severity: grave, Check: "local map", Map: f.m.Name, Text: fmt.Sprintf("comparing with the global map: %v", err)})
		return
	}
	for _, report := range reports {
		for _, found := range judgeReport(report) {
			d.find(found)
		}
	}
}

// servers looks at the servers of shards that have several.
func (d *doctor) servers(ctx context.Context, f *mapFacts) {
	var names []string
	for _, sh := range f.shards {
		if len(sh.Location.Servers) > 1 {
			names = append(names, sh.Name)
		}
	}
	if len(names) == 0 {
		return
	}
	views, err := d.lookAtServers(ctx, f.m, names)
	if err != nil {
		d.find(finding{Severity: grave, Check: "server", Map: f.m.Name, Text: fmt.Sprintf("checking servers: %v", err)})
		return
	}
	for _, v := range views {
		for _, found := range judgeServers(f.m.Name, v) {
			d.find(found)
		}
	}
}

func (d *doctor) lookAtServers(ctx context.Context, m shardway.ShardMap, names []string) (views []shardServersView, err error) {
	router, err := shardway.Open(ctx, d.global, shardway.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, router.Close()) }()
	handle, err := router.Map(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	w := wanted{threshold: selection.DefaultLocalThreshold}
	if w.criteria, err = selection.NewCriteria(&selection.ReadPreference{Mode: selection.ModeNearest}, nil); err != nil {
		return nil, err
	}
	db, err := d.session.servers(handle, w, answerWithin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return lookAtAll(ctx, db, names, w), nil
}
