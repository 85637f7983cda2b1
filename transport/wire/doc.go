// Package wire reads and writes the bytes of the Dynamo request plane: request frames and their acknowledgements, two-part
// messages, the control JSON that travels in them, and the bodies (requests, response items, failures) in MessagePack and
// JSON. It holds no sockets and knows no worker; package callhome and the transports move what it writes.
//
// One encoder and one decoder, both MessagePack, serve every body. A JSON body is transcoded on the way in or out: the
// encoding that carries nearly all traffic is read without a detour, and the two can't drift apart.
//
// Everything that arrives is untrusted. Lengths are checked against a limit and against the bytes that are there before
// anything is allocated, nesting is bounded by MaxDepth, and unknown members are skipped.
package wire
