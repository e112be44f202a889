package mongoshard

import (
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	drivertopology "go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/shardway/shardway/selection"
)

// defaultMaxPoolSize is the driver's. It sets it too late for a deployment that
// it is given, whose pools would then have no limit.
const defaultMaxPoolSize = 100

// libraryName is what servers see of this package in their logs.
const libraryName = "shardway"

// checkedOptions returns a copy of the options, completed, or why they cannot
// be honored.
func checkedOptions(given *options.ClientOptions) (*options.ClientOptions, error) {
	if given == nil {
		return nil, &OptionError{Option: "URI", Reason: "no options are given"}
	}
	o := options.MergeClientOptions(options.Client(), given)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := refuse(o); err != nil {
		return nil, err
	}
	if o.MaxPoolSize == nil {
		o.SetMaxPoolSize(defaultMaxPoolSize)
	}
	if mode := uriOption(o.GetURI(), "serverMonitoringMode"); o.ServerMonitoringMode == nil && mode != "" {
		o.SetServerMonitoringMode(mode) // the driver reads it from the URI and forgets it
	}
	return o, nil
}

// refuse names the options that a deployment of our own cannot honor.
func refuse(o *options.ClientOptions) error {
	switch {
	case o.Deployment != nil: //nolint:staticcheck // it must be refused
		return &OptionError{Option: "Deployment", Reason: "it is set already; a client has one deployment, and this package makes it"}
	case o.AutoEncryptionOptions != nil:
		return &OptionError{Option: "AutoEncryptionOptions", Reason: "the driver makes clients of its own for encryption, which would select by these criteria; use explicit encryption"}
	case o.Auth != nil && strings.EqualFold(o.Auth.AuthMechanism, "MONGODB-OIDC"):
		return &OptionError{Option: "Auth", Reason: "MONGODB-OIDC keeps its token in two places here, so that a token that expired would not be renewed; use another mechanism"}
	case o.LocalThreshold != nil && *o.LocalThreshold < 0:
		return &OptionError{Option: "LocalThreshold", Reason: "it is negative; 0 means the fastest server alone"}
	case o.ReadPreference != nil && o.ReadPreference.HedgeEnabled() != nil: //nolint:staticcheck // it must be refused
		return &OptionError{Option: "ReadPreference", Reason: "hedged reads are not supported"}
	}
	return nil
}

// uriOption returns the value of an option of a URI; names are not
// case-sensitive.
func uriOption(uri, name string) string {
	_, query, _ := strings.Cut(uri, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return ""
	}
	for key, list := range values {
		if strings.EqualFold(key, name) && len(list) > 0 {
			return strings.ToLower(list[len(list)-1])
		}
	}
	return ""
}

// clientCriteria returns the criteria of a client: those of the configuration,
// or the options' read preference. Both are a contradiction.
func clientCriteria(o *options.ClientOptions, c selection.Criteria) (selection.Criteria, error) {
	given := c != selection.Criteria{}
	switch p := o.ReadPreference; {
	case p == nil || p.Mode() == readpref.PrimaryMode:
		return c, nil
	case given:
		return c, &OptionError{
			Option: "ReadPreference and Config.Criteria",
			Reason: "the options ask for " + p.String() + ", the criteria for " + c.String() + "; give one of them",
		}
	default:
		return criteriaOf(p)
	}
}

// driverConfig is the driver's own configuration of a topology.
func driverConfig(o *options.ClientOptions) (*drivertopology.Config, error) {
	info := options.DriverInfo{}
	if o.DriverInfo != nil {
		info = *o.DriverInfo
	}
	if info.Name != "" {
		info.Name += "|"
	}
	info.Name += libraryName
	var current atomic.Pointer[options.DriverInfo]
	current.Store(&info)
	settings := []drivertopology.AuthConfigOption{
		drivertopology.WithAuthConfigClientOptions(o),
		drivertopology.WithAuthConfigDriverInfo(&current),
	}
	if o.Auth == nil {
		return drivertopology.NewAuthenticatorConfig(nil, settings...)
	}
	authenticator, err := auth.CreateAuthenticator(o.Auth.AuthMechanism, drivertopology.ConvertCreds(o.Auth), o.HTTPClient)
	if err != nil {
		return nil, err
	}
	return drivertopology.NewAuthenticatorConfig(authenticator, settings...)
}

// localThreshold is the latency window's width in our terms.
func localThreshold(o *options.ClientOptions) time.Duration {
	switch {
	case o.LocalThreshold == nil:
		return selection.DefaultLocalThreshold
	case *o.LocalThreshold == 0:
		return selection.FastestOnly
	}
	return *o.LocalThreshold
}

// uriText names a deployment in errors and logs. It never has a user or a
// password.
func uriText(o *options.ClientOptions) string {
	hosts := o.Hosts
	if len(hosts) == 0 {
		hosts = []string{"localhost:27017"}
	}
	text := "mongodb://" + strings.Join(hosts, ",")
	if o.ReplicaSet != nil && *o.ReplicaSet != "" {
		text += "/?replicaSet=" + url.QueryEscape(*o.ReplicaSet)
	}
	return text
}
