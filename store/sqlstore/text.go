package sqlstore

import "strings"

// text makes free text from people fit for every engine: valid UTF-8 without
// NUL. Names and keys never pass here; they are stored as they are.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
