// Package policy reads the router's policy file: which classes requests wait in, and which worker-selection policies the pools use.
//
// A [Profile] is the classes of a model. Clients ask for a family of classes, the router sees how much of the prompt no worker has
// cached, and both together name the class ([Profile.Select], [Choice.Class]); some classes can be asked for directly. Without a file there
// is one class, see [Synthetic]. The queues themselves are those of package queue.
//
// The file is read strictly: a key that is not known, a value of another type or a rule that is broken is an [*Error] that names file,
// line and the path inside the file.
package policy
