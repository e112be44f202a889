package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/shardway/shardway"
)

// setting is one thing a user sets once: by flag, else by environment, else in
// the settings file.
type setting struct {
	name   string // of the flag and of the key in the file
	usage  string
	preset string
	flag   bool // false for secrets: other users can read command lines
	local  bool // its flag is on the commands that need it
	show   func(string) string
}

func (s setting) variable() string {
	return "SHARDWAY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// allSettings in the order in which config show prints them.
var allSettings = []setting{
	{name: "store", flag: true, show: showDSN, usage: "DSN of the global store: " + dsnExamples()},
	{name: "store-password", show: hide, usage: "password for the store, in place of one in its DSN"},
	{name: "store-password-file", flag: true, show: plain, usage: "file with the password for the store"},
	{name: "shard-user", flag: true, show: plain, usage: "user for the shards' databases (default the store's user and password)"},
	{name: "shard-password", show: hide, usage: "password for the shards' databases"},
	{name: "shard-password-file", flag: true, show: plain, usage: "file with the password for the shards' databases"},
	{name: "postgres-options", show: showOptions, usage: "driver options for PostgreSQL shards, such as sslmode=verify-full"},
	{name: "mysql-options", show: showOptions, usage: "driver options for MySQL and MariaDB shards"},
	{name: "sqlserver-options", show: showOptions, usage: "driver options for SQL Server shards"},
	{name: "sqlite-options", show: showOptions, usage: "driver options for SQLite shards"},
	{name: "mongodb-options", show: showOptions, usage: "driver options for MongoDB shards, such as replicaSet=rs0&tls=false"},
	{name: "heartbeat-table", show: plain, usage: "table on the shards that says how far their secondaries are behind"},
	{name: "map", flag: true, local: true, show: plain, usage: "name of the shard map"},
	{name: "output", flag: true, preset: "table", show: plain, usage: "table for people or json for programs"},
	{name: "who", flag: true, show: plain, usage: "who makes the change, for the history (default user@host)"},
	{name: "lease", flag: true, preset: "15s", show: plain, usage: "how long a change may stand still before others may take it over"},
	{name: "wait", flag: true, preset: "20s", show: plain, usage: "how long to wait for another change of the same rows"},
}

func findSetting(name string) setting {
	return allSettings[slices.IndexFunc(allSettings, func(s setting) bool { return s.name == name })]
}

// given is the value of a setting and where it comes from.
type given struct{ text, source string }

// settings are the values of all settings that are set, defaults included.
type settings struct {
	values map[string]given
	file   string // the settings file; empty for none
}

func (s *settings) text(name string) string { return s.values[name].text }

// load collects the settings: flags, environment, file.
func (s *settings) load(flags *pflag.FlagSet) error {
	fromFile, err := s.readFile(flags)
	if err != nil {
		return err
	}
	s.values = map[string]given{}
	for _, d := range allSettings {
		f := flags.Lookup(d.name)
		switch {
		case f != nil && f.Changed:
			s.values[d.name] = given{f.Value.String(), "flag --" + d.name}
		case os.Getenv(d.variable()) != "":
			s.values[d.name] = given{os.Getenv(d.variable()), "environment " + d.variable()}
		case fromFile[d.name] != "":
			s.values[d.name] = given{fromFile[d.name], "file " + s.file}
		case d.preset != "":
			s.values[d.name] = given{d.preset, "default"}
		}
	}
	if o := s.values["output"]; o.text != "table" && o.text != "json" {
		return s.wrong("output", "is neither table nor json")
	}
	return nil
}

// wrong is the error for a setting whose value cannot be used.
func (s *settings) wrong(name, reason string) error {
	v := s.values[name]
	return &shardway.ArgumentError{Argument: fmt.Sprintf("setting %s (%s)", name, v.source), Value: findSetting(name).show(v.text), Reason: reason}
}

// readFile reads the file named by --config or SHARDWAY_CONFIG, else
// ./shardway.yaml, else the one in the user's configuration folder.
func (s *settings) readFile(flags *pflag.FlagSet) (map[string]string, error) {
	path := cmp.Or(flags.Lookup("config").Value.String(), os.Getenv("SHARDWAY_CONFIG"))
	if path != "" {
		return s.parseFile(path)
	}
	candidates := []string{"shardway.yaml"}
	if dir, err := os.UserConfigDir(); err == nil {
		candidates = append(candidates, filepath.Join(dir, "shardway", "shardway.yaml"))
	}
	for _, path := range candidates {
		values, err := s.parseFile(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return values, err
		}
	}
	return nil, nil
}

func (s *settings) parseFile(path string) (map[string]string, error) {
	body, err := readText("settings", path, maxSettings)
	if err != nil {
		return nil, err
	}
	var values map[string]string
	if err := yaml.Load(body, &values); err != nil && len(strings.TrimSpace(string(body))) > 0 {
		// The parser's own message may show a line of the file.
		return nil, &shardway.ArgumentError{Argument: "settings file", Value: path, Reason: "is not a list of lines like \"store: sqlite:maps.db\""}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(allSettings, func(d setting) bool { return d.name == name }) {
			return nil, &shardway.ArgumentError{Argument: "settings file " + path + ": key", Value: name, Reason: "is unknown: shardway config show lists the settings"}
		}
	}
	s.file = path
	for name, value := range values {
		values[name] = findSetting(name).fromFolder(filepath.Dir(path), value)
	}
	return values, nil
}

// fromFolder is the value of a setting in a file of that folder: relative paths
// start there. Only the paths of password files and of a SQLite store are
// known to be paths.
func (s setting) fromFolder(folder, value string) string {
	switch {
	case strings.HasSuffix(s.name, "-file") && value != "" && !filepath.IsAbs(value):
		return filepath.Join(folder, value)
	case s.name == "store":
		scheme, path, _ := strings.Cut(value, ":")
		if !strings.EqualFold(scheme, "sqlite") || path == "" || strings.ContainsAny(path[:1], "/?") {
			return value
		}
		return scheme + ":" + strings.ReplaceAll(strings.ReplaceAll(folder, "%", "%25"), "?", "%3F") + "/" + path
	}
	return value
}

// duration reads a setting that is a length of time. None at all is 1 ns,
// because the zero value stands for the default elsewhere.
func (s *settings) duration(name string) (time.Duration, error) {
	d, err := time.ParseDuration(s.text(name))
	if err != nil || d < 0 {
		return 0, s.wrong(name, "is not a length of time such as 15s")
	}
	return max(d, 1), nil
}

// secret returns the value of the setting name, or what the file named by the
// setting name-file holds, without the end of its line.
func (s *settings) secret(name string) (secret string, set bool, err error) {
	value, direct := s.values[name]
	file, indirect := s.values[name+"-file"]
	switch {
	case direct && indirect:
		return "", false, usagef("settings %s (%s) and %s-file (%s) exclude each other", name, value.source, name, file.source)
	case direct:
		return value.text, true, nil
	case indirect:
		body, err := readText(fmt.Sprintf("%s (%s-file from %s)", name, name, file.source), file.text, maxSettings)
		if err != nil {
			return "", false, err
		}
		return strings.TrimRight(string(body), "\r\n"), true, nil
	}
	return "", false, nil
}

// store returns where the global store is and who logs in there.
func (s *settings) store() (address, error) {
	if s.text("store") == "" {
		return address{}, &hinted{
			err:  &shardway.ArgumentError{Argument: "store", Reason: "is not set"},
			hint: "give --store DSN or set SHARDWAY_STORE: " + dsnExamples(),
		}
	}
	a, err := parseAddress(fmt.Sprintf("store (%s)", s.values["store"].source), s.text("store"), engineNames()...)
	if err != nil {
		return address{}, err
	}
	if a.engine == nil {
		return address{}, s.wrong("store", "is on MongoDB: the global store is in a SQL database, shards may be on MongoDB")
	}
	secret, set, err := s.secret("store-password")
	if set {
		a.credentials.Password = secret
	}
	return a, err
}

// shards returns the engines and the login for the shards' databases.
func (s *settings) shards(store address) ([]shardway.Engine, shardway.Credentials, error) {
	var speak []shardway.Engine
	for _, e := range engines {
		speak = append(speak, e.with(s.text(e.name+"-options"), s.text("heartbeat-table")))
	}
	secret, set, err := s.secret("shard-password")
	if err != nil {
		return nil, shardway.Credentials{}, err
	}
	if user := s.text("shard-user"); user != "" || set {
		return speak, shardway.Credentials{User: cmp.Or(user, store.credentials.User), Password: secret}, nil
	}
	return speak, store.credentials, nil
}
