package main

import (
	"net/url"
	"slices"
	"strings"
)

// harmless are the driver options whose values may be shown. All others may
// hold a secret, whatever they are called, or are not known here.
var harmless = []string{
	"sslmode", "connect_timeout", "application_name", "target_session_attrs", "search_path",
	"tls", "timeout", "readtimeout", "writetimeout", "charset", "collation",
	"encrypt", "trustservercertificate", "dial timeout", "connection timeout", "app name",
	"_pragma", "mode", "database",
}

const hidden = "***"

func plain(text string) string { return text }

func hide(string) string { return hidden }

// showOptions shows driver options, with the values of those alone that are
// known to be harmless.
func showOptions(query string) string {
	values, err := url.ParseQuery(query)
	if err != nil {
		return hidden
	}
	var parts []string
	for name, list := range values {
		for _, v := range list {
			if !slices.Contains(harmless, strings.ToLower(name)) {
				v = hidden
			}
			parts = append(parts, name+"="+v)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "&")
}

// showDSN shows a DSN without what may be secret; nothing of one that cannot
// be read.
func showDSN(dsn string) string {
	a, err := parseAddress("store", dsn)
	if err != nil {
		return hidden
	}
	text := a.location.String()
	if a.credentials.User != "" {
		login := a.credentials.User
		if a.credentials.Password != "" {
			login += ":" + hidden
		}
		text = strings.Replace(text, "://", "://"+login+"@", 1)
	}
	if a.options != "" {
		text += "?" + showOptions(a.options)
	}
	return text
}
