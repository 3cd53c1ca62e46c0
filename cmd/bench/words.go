package bench

import "strings"

// words are what synthetic prompts are made of: common enough that nearly each of
// them is one token of nearly every tokenizer, so that a prompt of n words has
// about n tokens before any counting.
var words = strings.Fields(`
able about above act add after again age ago agree air all allow along also always among amount and animal answer any appear
apple area arm around art ask baby back bad ball bank base be bear beat bed before begin behind best better big bird black
blood blue board boat body book born both box boy break bring brother brown build burn busy but buy by call came can car card
care carry case catch cause center chair chance change check child choose church city class clean clear close cloud coat cold
color come common copy corn cost could count course cover cross crowd cry cut dance dark day dead deal dear death deep did
die do doctor does dog door double down draw dream dress drink drive drop dry during each ear early earth east easy eat edge
effect egg eight else end enemy energy engine enough enter even ever every exact eye face fact fair fall family famous far
farm fast fat father fear feed feel few field fight fill final find fine finger finish fire first fish fit five flat floor
flow flower fly follow food foot for force form forward found four free fresh friend from front fruit full fun game garden
gas gave general get girl give glass go gold gone good got great green ground group grow guess gun hair half hand happen
happy hard has hat have he head hear heart heat heavy help her here high hill him his history hit hold hole home hope horse
hot hour house how human hundred hurt ice idea if inch iron island job join joy jump just keep key kill kind king knew know
lady lake land large last late laugh law lay lead learn leave left leg length less let letter level lie life lift light like
line list listen little live long look lost lot love low machine made mail main make man many map mark market matter may me
mean meat meet metal method middle might mile milk million mind mine minute miss money month moon more morning most mother
mountain mouth move much music must my name nation nature near need never new next night nine noise north nose note nothing
notice now number object ocean of off offer office often oil old on once one only open order other our out over own page
paint pair paper parent part party pass past path pattern pay people perhaps period person picture piece place plan plane
plant play please point poor port position possible power present press problem product program property protect prove public
pull push put question quick quiet race radio rain raise ran reach read ready real reason record red region remember rest
result rich ride right ring rise river road rock room root rope rose round rule run sad safe sail salt same sand save saw say
school science sea seat second see seed seem sell send sense sent serve set seven shade shape share sharp she sheet ship shoe
shop short should shout show side sight sign silver simple since sing sister sit six size skill skin sky sleep slip slow small
smell smile snow so soft soil soldier some son song soon sound south space speak special speed spell spend spoke spot spread
spring square stand star start state station stay steam steel step stick still stone stood stop store story strange street
string strong student study subject such sugar suit summer sun sure surface swim symbol system table tail take talk tall
teach team teeth tell ten term test than that the their them then there these they thick thin thing think third this those
though thought three through throw time tiny to together told tone too took tool top total touch toward town track trade train
travel tree trip true try tube turn twenty two type under unit until up use usual valley value very view village visit voice
vote wait walk wall want war warm was wash watch water wave way we wear weather week weight well went west what wheel when
where which while white who whole why wide wife wild will wind window wing winter wish with woman wonder wood word work world
would write wrong yard year yellow yes yet you young your`)
