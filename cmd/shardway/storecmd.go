package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/store"
)

func initCommand(a *app) *cobra.Command {
	var replace, dryRun bool
	c := &cobra.Command{
		Use: "init", Short: "Create the global store in its database", Args: arguments(),
		Long: "The database itself must exist, but for SQLite, where the file is created. A store that is\nthere already is left as it is (exit code 4), unless --replace is given: then all its shard\nmaps are deleted with it, while local maps on shards stay and belong to nobody any more.",
		Example: example("shardway init --store sqlite:maps.db", "SHARDWAY_STORE=postgres://catalog:secret@db/shardmaps shardway init",
			"shardway init --replace --dry-run"),
	}
	c.Flags().BoolVar(&replace, "replace", false, "replace a store that is there, with everything in it")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be done and change nothing")
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		v := initView{Store: s.address.location.String(), DryRun: dryRun}
		if err := s.before(ctx, &v); err != nil {
			return err
		}
		if v.exists && !replace {
			return fmt.Errorf("creating global store at %s: it has one with %s: %w", v.Store, count(v.Replaced, "shard map"), shardway.ErrExists)
		}
		if dryRun {
			return s.emit(v, func(p *page) { p.line("would create the global store at %s%s", v.Store, v.loss()) })
		}
		d, err := s.global.Deploy(ctx, replace)
		if err != nil {
			return fmt.Errorf("creating global store at %s: %w", v.Store, err)
		}
		v.ID, v.Version = d.ID, versionText(d.Version)
		return s.emit(v, func(p *page) {
			p.line("created the global store at %s: version %s, id %s%s", v.Store, v.Version, v.ID, v.loss())
		})
	})
}

type initView struct {
	Store    string `json:"store"`
	DryRun   bool   `json:"dry_run"`
	ID       string `json:"id,omitempty"`
	Version  string `json:"version,omitempty"`
	Replaced int    `json:"replaced_maps"`
	exists   bool
}

func (v initView) loss() string {
	if !v.exists {
		return ""
	}
	return fmt.Sprintf(", in place of one with %s", count(v.Replaced, "shard map"))
}

// before notes what the database has now.
func (s *session) before(ctx context.Context, v *initView) error {
	_, err := s.global.Describe(ctx)
	if errors.Is(err, shardway.ErrNoStore) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for a store at %s: %w", v.Store, err)
	}
	v.exists = true
	maps, err := s.ShardMaps(ctx)
	v.Replaced = len(maps)
	return err
}

// versionView is the JSON form of version.
type versionView struct {
	Program   string      `json:"program"`
	Go        string      `json:"go"`
	Supported string      `json:"supported_store"`
	Store     *storedView `json:"store,omitempty"`
}

// storedView is the JSON form of one store in a status.
type storedView struct {
	Store   string `json:"store"` // global, or the shard's local store
	Map     string `json:"map,omitempty"`
	Shard   string `json:"shard,omitempty"`
	At      string `json:"at"`
	Version string `json:"version,omitempty"`
	State   string `json:"state"` // current, upgrade due, newer minor version, not installed, or the error
	Error   string `json:"error,omitempty"`
	err     error
}

func programVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func versionCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "version", Short: "Show the versions of program and global store", Args: arguments(),
		Long:    "Shows the program's version and the store versions it works with and, when a store is set,\nthat store's version. The exit code tells when the store cannot be used or an upgrade is due.",
		Example: example("shardway version", "shardway version --output json"),
	}
	return a.does(c, func(ctx context.Context, _ []string) (err error) {
		v := versionView{Program: programVersion(), Go: runtime.Version(), Supported: fmt.Sprintf("%d.0 to %d.x, creates %s", store.Current.Major, store.Current.Major, versionText(store.Current))}
		if a.set.text("store") != "" {
			s, err := a.open()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, s.close()) }()
			g := s.globalState(ctx)
			v.Store = &g
		}
		if err := a.emit(v, func(p *page) { p.version(v) }); err != nil {
			return err
		}
		if v.Store == nil {
			return nil
		}
		return v.Store.err
	})
}

func (p *page) version(v versionView) {
	p.fields("program", v.Program, "go", v.Go, "store versions", v.Supported)
	if v.Store != nil {
		p.fields("global store  ", v.Store.text())
	}
}

func (v *storedView) text() string {
	if v.Version == "" {
		return v.At + ": " + v.State
	}
	return v.At + ": version " + v.Version + ", " + v.State
}

// judge fills in state and error from what Describe returned.
func (v *storedView) judge(d store.Description, err error) {
	switch {
	case errors.Is(err, shardway.ErrNoStore):
		v.State = "not installed"
	case errors.Is(err, shardway.ErrStoreVersion):
		v.State = "version not supported"
	case errors.Is(err, shardway.ErrForeignStore):
		v.State = "belongs to another global store"
	case err != nil:
		v.State = "unavailable"
	case d.Version.Minor < store.Current.Minor:
		v.State = "upgrade due"
		err = errUpgradeDue
	case d.Version.Minor > store.Current.Minor:
		v.State = "newer minor version"
	default:
		v.State = "current"
	}
	if d.Version != (store.Version{}) {
		v.Version = versionText(d.Version)
	}
	if err != nil {
		v.Error = err.Error()
		v.err = err
	}
}

func (s *session) globalState(ctx context.Context) storedView {
	v := storedView{Store: "global", At: s.address.location.String()}
	d, err := s.global.Describe(ctx)
	v.judge(d, err)
	return v
}

func statusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Show the version and state of the global store and every local store", Args: arguments(),
		Long:    "The exit code is 5 when a store is missing or cannot be reached, 6 when one has a version that\nthis program does not know, is to be upgraded, or belongs to another global store.",
		Example: example("shardway status", "shardway status --output json"),
	}
	return a.withStore(c, func(ctx context.Context, s *session, _ []string) error {
		all := []storedView{s.globalState(ctx)}
		if all[0].err == nil || errors.Is(all[0].err, errUpgradeDue) {
			locals, err := s.localStates(ctx)
			if err != nil {
				return err
			}
			all = append(all, locals...)
		}
		var rows [][]string
		var errs []error
		for _, v := range all {
			rows = append(rows, []string{v.Store, v.Map, v.Shard, v.At, v.Version, v.State})
			if v.err != nil {
				errs = append(errs, fmt.Errorf("%s store%s at %s: %w", v.Store, v.of(), v.At, v.err))
			}
		}
		if err := s.emit(all, func(p *page) {
			p.table([]string{"store", "map", "shard", "at", "version", "state"}, rows)
		}); err != nil {
			return err
		}
		return errors.Join(errs...)
	})
}

func (v *storedView) of() string {
	if v.Shard == "" {
		return ""
	}
	return fmt.Sprintf(" of shard %q", v.Shard)
}

// localStates asks the local store of every shard of every map.
func (s *session) localStates(ctx context.Context) ([]storedView, error) {
	global, err := s.global.Describe(ctx)
	if err != nil {
		return nil, err
	}
	maps, err := s.ShardMaps(ctx)
	if err != nil {
		return nil, err
	}
	var all []storedView
	for _, m := range maps {
		shards, err := s.Shards(ctx, m)
		if err != nil {
			return nil, err
		}
		for _, sh := range shards {
			v := storedView{Store: "local", Map: m.Name, Shard: sh.Name, At: sh.Location.String()}
			var d store.Description
			local, err := s.locals.Open(ctx, sh.Location)
			if err == nil {
				d, err = local.Describe(ctx)
			}
			if err == nil && d.ID != global.ID {
				err = shardway.ErrForeignStore
			}
			v.judge(d, err)
			all = append(all, v)
		}
	}
	return all, nil
}

func versionText(v store.Version) string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
