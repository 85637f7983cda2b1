// Package model keeps the models that a frontend serves in step with what discovery knows: which workers form a set, which
// cards are admitted, when a set's pipeline is built, changed and withdrawn, and which name leads to which pipeline. It knows
// neither HTTP nor what a pipeline does.
package model
