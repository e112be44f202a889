package dsn

import "strings"

// Redact returns an error that reads like err but never shows the secret. It
// unwraps to err, for those who look for types and codes.
func Redact(err error, secret string) error {
	if err == nil || secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return &redacted{text: strings.ReplaceAll(err.Error(), secret, "(secret)"), err: err}
}

type redacted struct {
	text string
	err  error
}

// Error returns the text without the secret.
func (r *redacted) Error() string { return r.text }

// Unwrap returns the driver's error.
func (r *redacted) Unwrap() error { return r.err }
