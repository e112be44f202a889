package sqlstore

// SetPage makes iterators hold n rows in memory.
func SetPage(g *Global, n int) { g.b.page = n }
