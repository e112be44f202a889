package main

import (
	"cmp"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"

	"github.com/shardway/shardway"
	"github.com/shardway/shardway/internal/dsn"
	"github.com/shardway/shardway/mongoshard"
	"github.com/shardway/shardway/selection"
)

// uriVariable holds the URI where it shall not be seen in a command line.
const uriVariable = "SHARDWAY_MONGODB_URI"

// deployment is a MongoDB deployment that a URI names.
type deployment struct {
	options   *options.ClientOptions
	name      string // what of the URI may be shown
	timeout   time.Duration
	strangers *strangers
	secrets   []string // parts of the URI that may not be shown
}

// readDeployment reads a URI. Its errors never show what may be secret.
func readDeployment(uri string) (*deployment, error) {
	source := "--uri"
	if uri == "" {
		uri, source = os.Getenv(uriVariable), uriVariable
	}
	if uri == "" {
		return nil, &hinted{err: usagef("--uri is missing"), hint: "give --uri mongodb://HOSTS/ or set " + uriVariable}
	}
	d := &deployment{secrets: secretsOf(uri), strangers: &strangers{members: map[string]*mongoshard.StrangerError{}}}
	d.options = options.Client().ApplyURI(uri)
	if err := d.options.Validate(); err != nil {
		return nil, d.redact(&shardway.ArgumentError{Argument: source, Reason: "cannot be used: " + oneLine(err.Error())})
	}
	d.name = "mongodb://" + strings.Join(d.options.Hosts, ",")
	if set := d.options.ReplicaSet; set != nil {
		d.name += "/?replicaSet=" + url.QueryEscape(*set)
	}
	if d.timeout = checkWithin; d.options.ServerSelectionTimeout != nil && *d.options.ServerSelectionTimeout > 0 {
		d.timeout = *d.options.ServerSelectionTimeout
	}
	d.options.SetServerMonitor(d.strangers.monitor())
	return d, nil
}

// settle joins the criteria of the URI and of the flags.
func (d *deployment) settle(w *wanted, f *criteriaFlags) error {
	flags := f.command.Flags()
	if p := d.options.ReadPreference; p != nil {
		for _, name := range []string{"read-preference", "tags", "max-staleness", "predicate"} {
			if flags.Changed(name) {
				return usagef("--%s and the read preference of the URI (%s) exclude each other", name, p)
			}
		}
		criteria, err := criteriaOf(p)
		if err != nil {
			return usagef("read preference of the URI: %w", err)
		}
		w.criteria, w.text = criteria, criteria.String()
	}
	d.options.ReadPreference = nil
	if t := d.options.LocalThreshold; t != nil && flags.Changed("local-threshold") {
		return usagef("--local-threshold and localThresholdMS of the URI (%v) exclude each other", *t)
	} else if t != nil {
		w.threshold = cmp.Or(*t, selection.FastestOnly)
	}
	return nil
}

// criteriaOf translates the driver's read preference.
func criteriaOf(p *readpref.ReadPref) (c selection.Criteria, err error) {
	var preference selection.ReadPreference
	if preference.Mode, err = selection.ParseMode(p.Mode().String()); err != nil {
		return c, err
	}
	for _, set := range p.TagSets() {
		tags := selection.Tags{}
		for _, tag := range set {
			tags[tag.Name] = tag.Value
		}
		preference.TagSets = append(preference.TagSets, tags)
	}
	preference.MaxStaleness, _ = p.MaxStaleness()
	return selection.NewCriteria(&preference, nil)
}

// secretsOf returns what of a URI may be secret: the password and the values of
// options that are not known to be harmless, as written and as meant. A URI
// with @ in several places may mean several passwords.
func secretsOf(uri string) (secrets []string) {
	rest := uri
	if _, after, ok := strings.Cut(uri, "://"); ok {
		rest = after
	}
	for i, c := range rest {
		if _, password, ok := strings.Cut(rest[:i], ":"); c == '@' && ok {
			secrets = append(secrets, password)
		}
	}
	_, query, _ := strings.Cut(uri, "?")
	for _, part := range strings.FieldsFunc(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(part, "=")
		if !slices.Contains(shownOptions, strings.ToLower(name)) {
			secrets = append(secrets, value)
		}
	}
	for _, s := range slices.Clone(secrets) {
		if meant, err := url.QueryUnescape(s); err == nil {
			secrets = append(secrets, meant)
		}
		if meant, err := url.PathUnescape(s); err == nil {
			secrets = append(secrets, meant)
		}
	}
	// The longest first: a part of a secret must not break the whole one.
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// shownOptions are the options of a URI whose values are no secrets.
var shownOptions = []string{
	"replicaset", "readpreference", "readpreferencetags", "maxstalenessseconds", "localthresholdms", "serverselectiontimeoutms",
	"connecttimeoutms", "sockettimeoutms", "timeoutms", "heartbeatfrequencyms", "directconnection", "loadbalanced", "tls", "ssl",
	"tlsinsecure", "appname", "authsource", "authmechanism", "retrywrites", "retryreads", "w", "journal", "readconcernlevel",
	"maxpoolsize", "minpoolsize", "compressors", "servermonitoringmode", "srvservicename", "srvmaxhosts",
}

// redact returns an error whose text has no secret of the URI.
func (d *deployment) redact(err error) error {
	for _, secret := range d.secrets {
		err = dsn.Redact(err, secret)
	}
	return err
}

// strangers are the servers that answered, but as members of another replica
// set than the URI names; the driver leaves them out.
type strangers struct {
	mu      sync.Mutex // guards members
	members map[string]*mongoshard.StrangerError
}

func (s *strangers) monitor() *event.ServerMonitor {
	return &event.ServerMonitor{ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := e.Reply.Addr.String()
		s.members[at] = &mongoshard.StrangerError{Server: at, Type: e.Reply.Kind, SetName: e.Reply.SetName}
	}}
}

// list returns those that are not of the set that the options name.
func (s *strangers) list(o *options.ClientOptions) (list []*mongoshard.StrangerError) {
	if o.ReplicaSet == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if m.SetName != *o.ReplicaSet {
			stranger := *m
			stranger.Want = *o.ReplicaSet
			list = append(list, &stranger)
		}
	}
	slices.SortFunc(list, func(a, b *mongoshard.StrangerError) int { return strings.Compare(a.Server, b.Server) })
	return list
}
