// Package probe holds what the probers of all engines have in common: one
// connection to each server, apart from the pools of users; the error of a
// missing right; and the heartbeat table, from which exact lag is read.
//
// A prober that asks for roles every few seconds must never wait for a user's
// connection, and a server that hangs must never cost users one. It decides
// nothing: what an answer means is up to the prober of the engine.
package probe
